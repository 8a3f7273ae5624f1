"""Reports of runs and studies, as lists of titles with tables, figures and texts."""
