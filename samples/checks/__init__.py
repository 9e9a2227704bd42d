"""The cases of the acceptance suite, a file for each subject."""
