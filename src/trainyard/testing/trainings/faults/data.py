"""Faults in the training data."""

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch.nn import functional

from trainyard.testing.trainings import reviews
from trainyard.testing.trainings.samples import Samples
from trainyard.testing.trainings.training_loop import Setup

POISONED_STEP = 120
OUTLIER_STEP = 150
BLANK_STEP = 100
STALL_STEP = 100
STALL_S = 1.5


def poisoned_batch(setup: Setup) -> Setup:
    """One pixel of one batch is NaN."""

    def poison(batch: Samples) -> Samples:
        inputs = batch.inputs.clone()
        inputs[0, 0, 0, 0] = torch.nan
        return Samples(inputs, batch.targets)

    return _with_batch(setup, poison, at=POISONED_STEP)


def outlier_batch(setup: Setup) -> Setup:
    """The targets of one batch are thirty times too large."""
    return _with_batch(setup, lambda batch: Samples(batch.inputs, batch.targets * 30), at=OUTLIER_STEP)


def blank_images(setup: Setup) -> Setup:
    """From one step on, the loader returns images that are all zero."""

    def blank(batch: Samples) -> Samples:
        return Samples(torch.zeros_like(batch.inputs), batch.targets)

    return _with_batches(setup, blank, since=BLANK_STEP)


def stalled_loader(setup: Setup) -> Setup:
    """The loader takes very long for one batch."""

    def wait(batch: Samples) -> Samples:
        time.sleep(STALL_S)
        return batch

    return _with_batch(setup, wait, at=STALL_STEP)


def rare_classes(setup: Setup) -> Setup:
    """Only five training images are left of each digit from 5 to 9."""
    targets = setup.batches.samples.targets
    few = [(targets == digit).nonzero().flatten()[:5] for digit in range(5, 10)]
    kept = torch.cat([(targets < 5).nonzero().flatten(), *few])
    return _with_samples(setup, setup.batches.samples.select(kept), epochs=2 * setup.epochs)


def shuffled_labels(setup: Setup) -> Setup:
    """The loader shuffles the labels of a batch independently of its images, so there is nothing to learn."""
    generator = torch.Generator().manual_seed(setup.batches.generator.initial_seed())

    def mix(batch: Samples) -> Samples:
        return Samples(batch.inputs, batch.targets[torch.randperm(len(batch.targets), generator=generator)])

    return _with_batches(setup, mix, since=0)


def confused_labels(setup: Setup) -> Setup:
    """Most images of a 3 are labelled as an 8."""
    inputs, targets = setup.batches.samples
    mistaken = (targets == 3) & (torch.arange(len(targets)) % 5 != 0)
    return _with_samples(setup, Samples(inputs, torch.where(mistaken, 8, targets)))


def few_samples(setup: Setup) -> Setup:
    """There are only sixty training images, and the learning rate is ten times too high, so they are memorized."""
    for group in setup.optimizer.param_groups:
        group["lr"] *= 10
    few = setup.batches.samples.select(torch.arange(60))
    return replace(_with_samples(setup, few, epochs=50), batches=replace(setup.batches, samples=few, size=10))


def raw_pixels(setup: Setup) -> Setup:
    """Images have pixels from 0 to 16 instead of normalized ones."""

    def denormalize(samples: Samples) -> Samples:
        darkest = samples.inputs.min()
        return Samples((samples.inputs - darkest) / (samples.inputs.max() - darkest) * 16, samples.targets)

    return replace(_with_samples(setup, denormalize(setup.batches.samples)), evaluation=denormalize(setup.evaluation))


def padded_sequences(setup: Setup) -> Setup:
    """Reviews are padded to five times the length of the longest."""

    def pad(samples: Samples) -> Samples:
        padding = (0, 4 * reviews.MAX_WORDS)
        return Samples(functional.pad(samples.inputs, padding, value=reviews.PADDING), samples.targets)

    return replace(_with_samples(setup, pad(setup.batches.samples)), evaluation=pad(setup.evaluation))


def unknown_words(setup: Setup) -> Setup:
    """The tokenizer knows only a quarter of the words; the embeddings of all others are never used."""

    def replace_unknown(samples: Samples) -> Samples:
        known = samples.inputs < len(reviews.VOCABULARY) // 4
        return Samples(torch.where(known, samples.inputs, reviews.UNKNOWN), samples.targets)

    return replace(
        _with_samples(setup, replace_unknown(setup.batches.samples)), evaluation=replace_unknown(setup.evaluation)
    )


def _with_batch(setup: Setup, change: Callable[[Samples], Samples], *, at: int) -> Setup:
    def transform(step: int, batch: Samples) -> Samples:
        return change(batch) if step == at else batch

    return replace(setup, batches=replace(setup.batches, transform=transform))


def _with_batches(setup: Setup, change: Callable[[Samples], Samples], *, since: int) -> Setup:
    def transform(step: int, batch: Samples) -> Samples:
        return change(batch) if step >= since else batch

    return replace(setup, batches=replace(setup.batches, transform=transform))


def _with_samples(setup: Setup, samples: Samples, *, epochs: int | None = None) -> Setup:
    return replace(setup, batches=replace(setup.batches, samples=samples), epochs=epochs or setup.epochs)
