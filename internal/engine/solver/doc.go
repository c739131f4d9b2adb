// Package solver answers: who has to go so that this gang can start, and is it worth it? It is the one victim search that
// the disruptive actions share. It never guesses: whatever it accepts was played through in the session, with the real
// ledgers, filters and rules, and whatever it rejects was too, up to the bounds it states in its verdict.
//
// The search takes units of victims one after another in policy order, skipping those that no rule allows, until the gang
// fits:
//
//	victims in policy order   a   b   c   d   e   f
//	evicted so far            a   ·   c   d             b may not be touched
//	the gang fits             no      no  yes           → {a, c, d} is enough
//	given back, last first    a           d             → c was not needed: {a, d}
//	elsewhere                 a → n7                    → a is moved, only d is killed
//
// Each step costs the change it makes: evicting a unit refreshes the nodes it was on, and "does the gang fit" is a
// comparison of two numbers that are kept up to date (how many pods of the class the nodes could take). So the answer
// "no" costs one pass over the victims, like the answer "yes". The prefix found is the shortest that suffices. For gangs
// of unequal pods the comparison is only a necessary condition; then the gang is placed for real where it holds, at
// doubling distances with bisection between, if only room matters: more room never hurts, so bisection finds the shortest
// prefix too, as long as placing is exact (see engine.Placer.TryGang for its bounds). Where filters (affinity, volumes) have a
// say, more victims do not always mean a better chance, and every prefix is tried, up to a bound; beyond it prefixes grow by a
// quarter, and a No says that the search was partial.
//
// A gang whose sets have to be in one domain of a declared topology is then tried in narrower ones, with searches of their own (nearer).
//
// What is given back is given back greedily, the last units first: what remains is irreducible, no part of it would do. A gang, or a
// set, whose minimum has to go keeps of the rest what it can run with, and of the minimum, if it can run with both.
//
// No prefix need suffice although some set of victims would: rules that depend on what was taken already (shares) may refuse a
// unit because of an earlier one, or allow it because of a later one, and a filter may miss who is gone. So, when a prefix fails
// because somebody was refused:
//
//	who was refused      asked again at the end, if something was taken nearer to the beneficiary's queue (again.go)
//	some only move       whatever shares say, if who is killed is lawful in the end (withMoves)
//	all choices          up to exhaustive units, any pods above a minimum (choose.go)
//	where it fits        pod by pod, on a node, in a domain: only units that free room there, in policy order restricted to
//	                     it, each judged at its moment (local.go, places.go)
//	where it fits, moved the same with whoever could move
//
// The first that finds something decides; the prefix comes first, because its answer is the one that people expect, and
// depends on nothing but the order. The search from places takes choices back that lead nowhere, and passes over places that
// ask as much, or more, of a queue as one that led nowhere for nothing but what that queue owes. Its work counts in steps and
// is bounded. What was not tried is named in the No.
//
// Who gives next is found by a tournament of queues that follows the shares (stand), most of which questions share, as a queue beside
// the beneficiary's way is asked about once for all leaves below it (ground), what the rules about gangs say of whole leaves
// is remembered between searches (sieve), and where even everybody's going would not make room enough, in all (most) or in the
// domains that a gang requires (near), or those who move and the gang would not all have places, nobody's is played through; neither
// is anybody's moving where those who may not be killed (mortals), and the gang, would not. What all searches of an action may cost in one run is bounded,
// and the next run goes on: see Budget.
//
// All this is proved against brute force on small clusters (TestOracle, TestPrefix, TestHarm, TestPlaces), whose law is written
// independently of this package, for gangs with sets, and sets that stay together, too, and by every row of the table in docs/concepts/disruption.md (TestTable). Gangs whose
// questions have one name get one answer (TestQuestion), and what is shared between questions changes none (TestBySiblings).
package solver
