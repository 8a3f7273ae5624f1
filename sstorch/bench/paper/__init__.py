"""The draft of a paper from a run: methods, tables, figures, checklist; of the ``sstorch-paper`` command."""
