"""What the features of class names, made by CLIP's text side, add to a run."""
