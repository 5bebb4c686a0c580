"""How many workgroups a program means, which elements a grid reaches, how long a launch takes."""
