// Package forecast proves what see.Forecast says: it makes up loads (and replays a recorded one), lets a cluster live under them, asks for
// forecasts, and compares bands with the starts that came, beside two other ways to foretell a wait. The made-up loads know the true runtimes;
// package see cannot import this one (archtest, layers), and learns of a gang what a scheduler would: what its owner declares, and cycles.
package forecast
