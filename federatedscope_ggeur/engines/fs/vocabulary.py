"""What requests and answers are called in FederatedScope's (FS's) messages."""

from __future__ import annotations

#: Kind of request -> the type of the message down, and of the answer up.
DOWN = {
    "statistics": "statistics_request",
    "prepare": "geometry",
    "share": "shared",
    "train": "model_para",
    "score": "evaluate",
    "calibrate": "calibrate",
}
UP = {
    "statistics": "statistics",
    "prepare": "ready",
    "train": "model_para",
    "score": "metrics",
    "calibrate": "calibration_statistics",
}
KIND_OF_DOWN = {message: kind for kind, message in DOWN.items()}
KIND_OF_UP = {message: kind for kind, message in UP.items()}
JOIN, FINISH, FAILED = "join_in", "finish", "failed"
