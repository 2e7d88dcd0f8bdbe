"""Digits of a class that was not there in training: who finds them?"""
