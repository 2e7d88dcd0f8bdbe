"""Breaks of models."""

from scripts.breaks.item import Break

BREAKS = [
    Break(
        "missing values count",
        "models/latent.py",
        "return jnp.sum(jnp.where(is_observed, terms, 0))",
        "return jnp.sum(terms)",
        "models/test_context.py::test_what_is_missing_drops_out_with_its_gradient",
    ),
    Break(
        "an encoder sees what is missing",
        "models/latent.py",
        "x = jnp.where(self.context.is_observed.ravel(), floats(x), jnp.nan)",
        "x = floats(x)",
        "models/test_context.py::test_an_encoder_sees_what_is_observed_and_nothing_else",
    ),
    Break(
        "densities with an axis too many are broadcast",
        "models/joint.py",
        "        if np.shape(value):",
        "        if False:",
        "models/test_joint.py",
    ),
    Break(
        "conditions reach the networks as they are",
        "models/latent.py",
        "seen = values if part.conditions is None else part.conditions.standardise(values)",
        "seen = values if part.conditions is None else 0 * part.conditions.standardise(values)",
        "models/test_context.py::test_conditions_are_standardised_inside",
    ),
    Break(
        "latents of NumPyro without the volume of their transform",
        "models/doors/sites.py",
        "return value, jnp.sum(transform.log_abs_det_jacobian(inside, value))",
        "return value, jnp.zeros(())",
        "doors/test_numpyro.py::test_unconstrained_densities_have_the_volume",
    ),
    Break(
        "a guide whose sites depend on one another without the volume",
        "models/doors/guides.py",
        "return volume + log_probs(sites, [way.site",
        "return log_probs(sites, [way.site",
        "doors/test_numpyro.py::test_a_guide_may_draw_one_site_given_another",
    ),
    Break(
        "an autoguide's vector is read in another order",
        "models/doors/guides.py",
        "shapes = tuple((n, z[n].shape) for n in order if n in z)",
        "shapes = tuple((n, z[n].shape) for n in order[::-1] if n in z)",
        "doors/test_numpyro.py::test_an_autoguide_of_one_vector_has_its_density",
    ),
]
