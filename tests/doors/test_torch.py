"""Networks of PyTorch in JAX: the same numbers and gradients, or one line that says why not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aisle
from aisle.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-doors has it")
nn, functional = torch.nn, torch.nn.functional

pytestmark = pytest.mark.usefixtures("quick_compilation")

NUM_LATENTS = 6


def picture(channels=2, size=4):
    """Layers from latents to a picture."""
    number = channels * size * size
    return nn.Linear(NUM_LATENTS, number), nn.Unflatten(1, (channels, size, size))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))

    def forward(self, z):
        z = z + self.inside(z)
        return z - 0.5 * functional.softplus(self.inside(z)) ** 2


class Called(nn.Module):
    """A function with no weights of its own, after a linear layer."""

    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(NUM_LATENTS, 8), function

    def forward(self, z):
        return self.function(self.linear(z))


class Attention(nn.Module):
    """Dot products of parts, written out."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(NUM_LATENTS, 24)

    def forward(self, z):
        query, key, value = self.linear(z).reshape(-1, 4, 6).chunk(3, dim=-1)
        weights = torch.softmax(query @ key.transpose(1, 2) / 2**0.5, dim=-1)
        return torch.cat([weights @ value, value.mean(1, keepdim=True).expand(-1, 2, -1)], 1)


ACTIVATIONS = [
    *(nn.ReLU, nn.ELU, nn.SELU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.Tanh),
    *(nn.Sigmoid, nn.LogSigmoid, nn.Hardtanh, nn.Hardswish, nn.PReLU, nn.Softsign, nn.CELU),
]
NORMS = {
    "BatchNorm1d": (nn.Linear(NUM_LATENTS, 8), nn.BatchNorm1d(8)),
    "BatchNorm2d": (*picture(), nn.BatchNorm2d(2)),
    "LayerNorm": (nn.Linear(NUM_LATENTS, 8), nn.LayerNorm(8)),
    "LayerNorm of pictures": (*picture(), nn.LayerNorm((4, 4))),
    "GroupNorm": (*picture(4), nn.GroupNorm(2, 4)),
    "InstanceNorm2d": (*picture(), nn.InstanceNorm2d(2, affine=True)),
}
LAYERS = {
    "Linear": (nn.Linear(NUM_LATENTS, 8, bias=False),),
    "Conv1d": (nn.Linear(NUM_LATENTS, 12), nn.Unflatten(1, (2, 6)), nn.Conv1d(2, 3, 3, padding=1)),
    "Conv2d": (*picture(3, 5), nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=1, dilation=(1, 2))),
    "Conv2d in groups": (*picture(4), nn.Conv2d(4, 6, 3, groups=2, padding="same")),
    "ConvTranspose1d": (
        *(nn.Linear(NUM_LATENTS, 12), nn.Unflatten(1, (2, 6))),
        nn.ConvTranspose1d(2, 3, 4, stride=2, padding=1),
    ),
    "ConvTranspose2d": (*picture(3), nn.ConvTranspose2d(3, 3, 3, stride=2, output_padding=1)),
    "ConvTranspose2d, wide": (
        *picture(2),
        nn.ConvTranspose2d(2, 3, (4, 3), stride=(2, 3), padding=(1, 2), dilation=(1, 2)),
    ),
    "ConvTranspose2d in groups": (
        *picture(4),
        nn.ConvTranspose2d(4, 6, 3, 2, groups=2, bias=False),
    ),
    "Upsample": (*picture(), nn.Upsample(scale_factor=2), nn.Conv2d(2, 1, 3)),
    "Upsample to a size": (*picture(), nn.Upsample(size=(7, 9))),
    "PixelShuffle": (*picture(4), nn.PixelShuffle(2)),
    "AvgPool2d": (*picture(), nn.AvgPool2d(2)),
    "MaxPool2d": (*picture(2, 6), nn.MaxPool2d(3, stride=2, padding=1)),
    "padding": (*picture(), nn.ZeroPad2d((1, 0, 2, -1)), nn.Flatten()),
    "Dropout that is off": (nn.Linear(NUM_LATENTS, 8), nn.Dropout(0.5)),
    "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(NUM_LATENTS, 8)),),
    "residual block": (Residual(),),
    "attention": (Attention(),),
    "logarithm of a softmax": (Called(lambda h: torch.log_softmax(h, -1)),),
    "pieces": (Called(lambda h: torch.stack([h[:, :4], h[:, 4:].flip(1)], 2)),),
    "sums": (Called(lambda h: h.sum(1, keepdim=True) + h.var(1, keepdim=True) * h),),
    "choices": (Called(lambda h: torch.where(h > 0, h, h.abs().sqrt()).clamp(-1, 1)),),
    "squares": (Called(lambda h: (h**2 + 1).rsqrt() + (1 - h).pow(3) / 2),),
    "two outputs": (Called(lambda h: (h[:, :4], torch.exp(h[:, 4:]))),),
    **{kind.__name__: (nn.Linear(NUM_LATENTS, 8), kind()) for kind in ACTIVATIONS},
    **NORMS,
}


def network(*layers):
    """Return layers with weights that are no round numbers, and statistics of no standard batch."""
    torch.manual_seed(1)
    made = nn.Sequential(*layers).eval()
    with torch.no_grad():
        for name, array in [*made.named_parameters(), *made.named_buffers()]:
            if array.is_floating_point():
                array.uniform_(0.5, 2) if "var" in name else array.normal_(0, 0.7)
    return made


def flat(output):
    outputs = output if isinstance(output, tuple) else (output,)
    return torch.cat([a.flatten(1) for a in outputs], 1)


@pytest.mark.parametrize("name", LAYERS)
def test_outputs_and_gradients_are_those_of_pytorch(name):
    made = network(*LAYERS[name])
    outputs = flat(made(torch.zeros(1, NUM_LATENTS))).shape[1]
    model, _ = aisle.from_torch(made, aisle.Gaussian(outputs))
    z = np.random.default_rng(3).normal(0, 2, (4, NUM_LATENTS)).astype(np.float32)
    there = torch.tensor(z, requires_grad=True)
    wanted = flat(made(there))
    pull = torch.linspace(-1, 2, wanted.shape[1])[None] * torch.tensor([[1.0], [-2], [3], [0.5]])
    wanted.backward(pull)
    found, back = jax.vjp(jax.vmap(model.decoder), jnp.asarray(z))
    np.testing.assert_allclose(found, wanted.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(back(jnp.asarray(pull.numpy()))[0], there.grad, rtol=1e-3, atol=1e-4)


def test_gradients_stay_finite_far_out():
    made = network(Called(lambda h: functional.softplus(h) + functional.elu(h)))
    model, _ = aisle.from_torch(made, likelihood="gaussian")
    gradient = jax.jacobian(model.decoder)(jnp.full(NUM_LATENTS, 1e4))
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0.1


def vae():
    encoder = network(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4))
    return network(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 8)), encoder


def test_the_density_is_that_of_pytorchs_loss():
    decoder, encoder = vae()
    model, proposal = aisle.from_torch(decoder, "bernoulli", encoder)
    x, z = torch.bernoulli(torch.full((1, 8), 0.4)), torch.randn(1, 2)
    loss = functional.binary_cross_entropy_with_logits(decoder(z), x, reduction="sum")
    found = model.log_likelihood(jnp.asarray(x[0].numpy()), jnp.asarray(z[0].numpy()))
    assert float(found) == pytest.approx(-float(loss.detach()), rel=1e-5)
    mean, log_variance = encoder(x).detach()[0].numpy().reshape(2, 2)
    q = proposal(jnp.asarray(x[0].numpy()))
    np.testing.assert_allclose(q.loc, mean, rtol=1e-5)
    np.testing.assert_allclose(q.scale, np.exp(log_variance / 2), rtol=1e-5)


@pytest.mark.parametrize("ends", [(nn.Sigmoid(),), (nn.Sigmoid(), nn.Unflatten(1, (2, 4)))])
def test_a_sigmoid_before_a_bernoulli_likelihood_is_left_out(ends):
    decoder, _ = vae()
    z = jnp.array([0.3, -2.0])
    logits = aisle.from_torch(decoder)[0].decoder(z)
    model, _ = aisle.from_torch(network_as_it_is(decoder, *ends))
    np.testing.assert_array_equal(model.decoder(z), logits)
    assert model.shape == ((2, 4) if len(ends) > 1 else (8,))


def network_as_it_is(*layers):
    return nn.Sequential(*layers).eval()


def test_a_sigmoid_inside_stays():
    decoder, _ = vae()
    gate = network_as_it_is(decoder, Gate())
    z = torch.tensor([[0.3, -2.0]])
    model, _ = aisle.from_torch(gate)
    found = model.decoder(jnp.asarray(z[0].numpy()))
    np.testing.assert_allclose(found, gate(z)[0].detach(), rtol=1e-5)


class Gate(nn.Module):
    def forward(self, h):
        gate = torch.sigmoid(h)
        return torch.stack([gate * 4 - 2, gate], 1)[:, 0]


def test_pictures_are_encoded_in_the_shape_that_the_encoder_takes():
    decoder = network(nn.Linear(2, 16), nn.Unflatten(1, (1, 4, 4)))
    for first in (nn.Conv2d(1, 1, 1), nn.Linear(16, 16)):
        encoder = network(first, nn.Flatten(), nn.Linear(16, 4))
        model, proposal = aisle.from_torch(decoder, encoder=encoder)
        x = aisle.sample(model, 3)
        assert x.shape == (3, 1, 4, 4)
        shape = (3, 1, 4, 4) if isinstance(first, nn.Conv2d) else (3, 16)
        wanted = encoder(torch.tensor(np.asarray(x).reshape(shape)))[:, :2]
        np.testing.assert_allclose(aisle.encode(proposal, x), wanted.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_training_goes_on_and_weights_go_back():
    decoder, encoder = vae()
    decoder = network(*decoder[:1], nn.BatchNorm1d(6), *decoder[1:])
    decoder[0].bias.requires_grad_(False)
    model, proposal = aisle.from_torch(decoder, encoder=encoder)
    before = {name: array.clone() for name, array in decoder.state_dict().items()}
    fitted = aisle.fit(
        model,
        proposal,
        np.random.default_rng(0).integers(0, 2, (40, 8)),
        method=aisle.VAE(),
        optimizer=aisle.Adam(0.1),
        num_updates=3,
        batch_size=8,
    )
    decoder.load_state_dict(aisle.to_torch(fitted.model))
    encoder.load_state_dict(aisle.to_torch(fitted.proposal))
    changed = {n for n, a in decoder.state_dict().items() if not torch.equal(a, before[n])}
    assert changed == {"0.weight", "1.weight", "1.bias", "3.weight", "3.bias"}
    z = torch.tensor([[0.5, -1.0]])
    found = fitted.model.decoder(jnp.asarray(z[0].numpy()))
    np.testing.assert_allclose(found, decoder(z)[0].detach(), rtol=1e-4)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = self.second = nn.Linear(3, 3)

    def forward(self, z):
        return self.second(torch.tanh(self.first(z)))


def test_tied_weights_stay_tied():
    made = network(Tied())
    model, _ = aisle.from_torch(made, "gaussian")
    assert set(model.decoder.weights) == {"0.first.weight", "0.first.bias"}
    returned = aisle.to_torch(model)
    assert made.load_state_dict(returned).missing_keys == []
    assert torch.equal(returned["0.second.bias"], returned["0.first.bias"])


def test_weights_of_64_bits_are_taken_in_those_of_jax():
    decoder, _ = vae()
    model, _ = aisle.from_torch(decoder.double())
    assert model.decoder.weights["0.weight"].dtype == jnp.float32
    assert decoder[0].weight.dtype == torch.float64


class Noise(nn.Module):
    def forward(self, z):
        return z + torch.randn_like(z)


class Choice(nn.Module):
    def forward(self, z):
        return z if z.sum() > 0 else -z


class Detached(nn.Module):
    def forward(self, z):
        return z * z.detach()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: 3, "decoder is a int: give a torch.nn.Module"),
        (lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), "layer 1 .*BatchNorm1d"),
        (lambda: nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.1)), "layer 1 .*Dropout"),
        (lambda: network(nn.Linear(2, 3), Noise()), "outputs of the decoder differ .* in a batch"),
        (
            lambda: network(nn.Linear(2, 3), nn.BatchNorm1d(3, track_running_stats=False)).eval(),
            "does not take a batch|differ .* in a batch",
        ),
        (lambda: network(nn.Linear(2, 3), Choice()), "torch.export cannot take the decoder apart"),
        (lambda: network(nn.Linear(2, 3), Detached()), "gradients of the decoder differ"),
        (
            lambda: network(nn.Linear(2, 3), Called3()),
            r"uses aten\.\w+\.default in its layer 1, which cannot be translated",
        ),
        (lambda: network(nn.ConvTranspose2d(2, 1, 3)), "num_latents is None"),
        (lambda: network_as_it_is(nn.LazyLinear(3)), "a LazyLinear, has no weights yet"),
        (lambda: network(nn.Flatten(2), nn.Linear(2, 3)), "does not take a batch of the shape"),
        (lambda: network(nn.Linear(2, 3), nn.Softmax(1)), "all outputs .* between 0 and 1"),
        (
            lambda: network(Called(lambda h: torch.distributions.Bernoulli(logits=h))),
            "it returns a Bernoulli, and not tensors alone",
        ),
        (lambda: network(Called(lambda h: (h, h))), "'bernoulli', .* but the decoder returns 2"),
        (lambda: network(Called(lambda h: h / 0.0)), "outputs of the decoder are not finite"),
    ],
)
def test_what_cannot_be_taken_is_named(made, words):
    with pytest.raises(InputError, match=words) as caught:
        aisle.from_torch(made())
    assert "\n" not in str(caught.value)


class Called3(nn.Module):
    def forward(self, h):
        return torch.special.i0e(torch.cumprod(h, 1))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"likelihood": "normal"}, "likelihood is 'normal': it must be one of bernoulli"),
        ({"likelihood": aisle.Bernoulli(5)}, "takes 5 numbers, but the decoder gives 8"),
        ({"num_latents": 0}, "num_latents is 0"),
        ({"num_latents": 7}, "does not take a batch of the shape"),
        ({"encoder": nn.Linear(8, 3)}, "the encoder gives 3 numbers: it must give 4"),
        ({"encoder": nn.Linear(9, 4)}, "the encoder does not take a batch"),
        ({"encoder": nn.Sequential(nn.Linear(8, 4), nn.Dropout())}, "call encoder.eval"),
    ],
)
def test_parts_that_do_not_fit(options, words):
    with pytest.raises(InputError, match=words):
        aisle.from_torch(vae()[0], **options)


@pytest.mark.usefixtures("as_users_have_it")
def test_a_class_is_no_likelihood():
    with pytest.raises(InputError, match="likelihood is Bernoulli: give a name"):
        aisle.from_torch(vae()[0], aisle.Bernoulli)


def test_a_model_of_elsewhere_has_no_state_dict():
    with pytest.raises(InputError, match="part is a LinearGaussian"):
        aisle.to_torch(aisle.LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), jnp.array(0.0)))
