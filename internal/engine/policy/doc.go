// Package policy is what plugins are written against: the extension points, the View that they read a run through, and the verdicts and
// reasons that they answer in.
//
//	Profile ──► Factory.New ──once per profile──► open(View) ──once per run──► Instance, bound at its Extensions ──► Plugins
//	                                                                             who asks: ledger (Hooks), rules, placer
//
// A plugin imports this package, the model, and package ledger for what it is asked about (a gang, a queue, an operation); it knows neither
// who asks nor another plugin. The package decides nothing: how the opinions of several plugins combine is said at [Point], and done by
// who asks.
package policy
