"""Settings of runs that sum their statistics securely, or release them with noise.

They fit the embeddings of `embeddings_folder`.
"""

SUMS = (
    "ggeur.privacy.secure_sums", "statistics",
    "ggeur.privacy.secure_sums_radius", 40,
    "ggeur.privacy.secure_sums_max_rows", 4096,
    "ggeur.privacy.secure_sums_fraction_bits", 38,
)  # fmt: skip
#: Of each client by itself.
NOISE = (
    "ggeur.privacy.dp.epsilon", 4,
    "ggeur.privacy.dp.rows_per_class", 20,
    "ggeur.privacy.dp.noise", "client",
    "ggeur.privacy.min_samples", 1,
    "ggeur.agreed.class_names", [str(c) for c in range(12)],
)  # fmt: skip
#: The head that either of them may make.
LDA = ("ggeur.closed_form", "lda")
SHRUNK_LDA = (*LDA, "ggeur.lda.shrinkage", 0.3)
#: What a run that samples takes from its sums.
OTHERS = ("ggeur.geometry", "pooled", "ggeur.prototypes", "others")
