"""Systems of equations and matrix factors."""
