"""Pages show the recorded answers, and nothing else."""

import re

from applications import gallery


def test_pages_show_what_is_on_record():
    assert gallery.recorded()
    for page, text in gallery.pages().items():
        assert page.read_text() == text
    places = re.findall(r"<!-- (\w+) -->", gallery.GALLERY.read_text())
    assert sorted(p for p in places if p != "end") == gallery.recorded()
