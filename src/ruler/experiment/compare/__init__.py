"""Every method on one dataset: settings -> cells of the studies' grid -> models, audits and peers' metrics."""
