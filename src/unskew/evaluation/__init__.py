"""Where metrics and estimators meet: a log and predictions in, risks with intervals out."""
