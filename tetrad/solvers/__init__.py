"""Solvers: differential equations, with derivatives. `td.odeint` is the public name."""
