// Before anything is painted: the theme that was chosen, if one was. Without a choice the system decides.
{
  const chosen = localStorage.getItem("tetrad.theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
}
