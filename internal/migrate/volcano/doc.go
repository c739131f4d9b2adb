// Package volcano says whether a cluster can change over from Volcano to Muster now, and what of it will differ.
//
//	a cluster ──Look──► Objects ──Judge(now)──► migrate.Report
//
// Judge is pure. It finds what stands in the way (Volcano's programs that run, Leases that they hold, webhooks that nobody answers), and each difference that can be seen from objects. The
// differences are those of the ledger of Volcano: each is found under the key that a row has as `told`, and is told in the row's own words, with its reason. Rows without a key cannot be seen
// from objects, and are not told. What is said of an object of somebody else's is bounded: some names and a count.
package volcano
