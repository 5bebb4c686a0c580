"""sort, argsort and topk."""
