"""HTTP: both protocols and the page over one engine."""
