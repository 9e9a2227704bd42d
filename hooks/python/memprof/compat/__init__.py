"""Interfaces of other libraries, implemented by memprof: code written for them changes one import."""
