// Package cli is the command line of Muster's users: one file per command, each returning a cobra command that
// cmd/muster adds to its root. Commands parse, call one package, and print; they decide nothing.
package cli
