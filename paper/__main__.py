"""`python -m paper`."""

import signal


def main() -> None:
    """Load the command line and run it."""
    # While modules are loaded there is nothing to lose: Ctrl-C ends this process like any other.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from paper.options import main as run

    run()


if __name__ == "__main__":
    main()
