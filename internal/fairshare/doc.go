// Package fairshare divides a cluster over a tree of queues.
//
// It answers four questions, each a pure function of plain numbers:
//
//   - [Divider.Divide]: how much of every resource is each queue entitled to right now (its fair share)?
//   - [Order.Key] and [Compare]: of two sibling queues, which one is served next (and, reversed, which one gives first)?
//   - [OverLimit] and [OverQuota]: would this request lift some queue on the way to the root above its limit, or
//     non-preemptible work above quota?
//   - [Reclaim]: may this be taken from that queue for a request of this one, and by which right?
//
// It knows no pod, no node, no API object and no clock, and it reports nothing: a plugin of the engine, the simulators
// and the command line call it with the same numbers and get the same answer. It never fails. Bad numbers are read by
// the rules under "Bad input", so whoever wants to complain about them has to look before.
//
// # Units
//
// All amounts are int64 in base units, one entry per dimension: milli-CPU, bytes, milli-GPU (1000 = one GPU), counts.
// Dimensions that queues do not share, such as pod slots, are masked out by Shared.
// [Unlimited] (-1) as a quota or limit means no bound. Historical usage and the k-value are fixed-point with [One] =
// 1,000,000; of weights only the ratios count. No float takes part in a division or a comparison, nothing depends on the order of the input, and
// a result is the same on every machine.
//
// # The division
//
// Siblings divide what their parent got (top-level queues: the cluster). Dimensions do not influence each other. With
//
//	requestable = min(limit, request)
//
// one set of siblings divides an amount total of one dimension so:
//
//  1. Quota. Every queue gets min(quota, requestable), whatever its priority, and even if these add up to more than
//     total (unlimited quota counts as total). What is left of total, if anything, is divided over quota.
//
//  2. Over quota, by priority, highest first, in rounds. A queue that still wants something takes part with its
//     weight; s is its part of the round:
//
//     n = weight / Σ weights          s = max(0, n + k·(n − usage))          share = left × s / Σ s
//
//     A queue that needs no more than its share gets what it needs. Any other gets its share floored to whole units
//     (one GPU, one milli-CPU, one byte: Input.Unit) and remembers the fraction. If a queue needed less than its share,
//     the others play another round for what is left. If Σ s is 0 the priority is done. What a priority leaves goes
//     down to the next one, and that includes what flooring left over.
//
//  3. Remainders. If something is left after the last priority, then from the highest priority down, the queues that
//     remembered a fraction get one unit each, or as much as they need or as there is: larger fraction first, then, with
//     k > 0, who used less for its weight, then the older queue, then the smaller UID. Queues of one fraction that have nothing yet take turns at the places that they
//     have by this order: first those that hold something (Queue.Held), then those served longest ago (Queue.Served).
//
// So equal queues that are more than there are units all have their turn, and nobody is displaced for it: who has a unit keeps
// it while it is in use, and then it goes to who has gone without for longest.
//
// A queue of weight 0 gets its quota and never anything over it. Without a k-value, steps 2 and 3 hand out everything
// that is left or everything that queues of positive weight want, whichever is less. With k > 0 a queue that used much
// lately gets less than its weight says, one that used little gets more, and something may stay undivided if every
// queue used too much. A queue that the cycle of its parents cuts off from the top gets nothing.
//
// Three consequences surprise people. Quota is a promise even when it was sold twice: fair shares then add up to more
// than there is. In step 2 the part of a unit that two high-priority queues could not split goes to a lower priority
// that can use it whole. And more weight, more quota, a larger request or a larger cluster can cost a queue one unit,
// when somebody else's fraction becomes the larger one.
//
// # A worked example
//
// Eleven GPUs, three queues of one priority:
//
//	        quota  weight  wants │ quota   round 1           round 2           remainder │ fair
//	a         4      2       10  │   4    +2   (2.50 → .50)  +0   (0.67 → .67)    +1     │   7
//	b         2      1        3  │   2    +1   (needs 1 ≤ 1.25)  satisfied               │   3
//	c         0      1       10  │   0    +1   (1.25 → .25)  +0   (0.33 → .33)           │   1
//	                       left  │   5     1                 1                     0
//
// Round 1 divides 5 GPUs by 2:1:1. b needs less than its share, so a and c play again, 2:1, for the GPU that is left.
// Neither share is a whole GPU; a has the larger fraction and gets it.
//
// # The next queue
//
// [Order.Key] distils what decides about a queue, its next gang and the victims assumed away, and [Compare] orders two
// keys by the first rule that tells them apart ([Rule], in their order). Every rule is a comparison of one value of each
// queue, so the order is total, and strict while UIDs differ. That is what the victims' order (the same, reversed) and
// reproducible plans need, and the two places where it had to be made exact differ from KAI Scheduler: of two queues
// created in the same instant KAI prefers whichever is on the right, here the smaller UID wins; and where one queue has
// the smaller allocatable share in one dimension and the other in another, KAI goes on to age, which lets three queues
// beat each other in a circle, while here the last dimension in which they differ decides (the scarce ones come last).
//
// # Taking back
//
// A queue whose request fits its fair share may take back what others hold ([Reclaim.OverFairShare]). Between two queues
// the matter is settled at the level where their ways from the top part. There a unit may be taken by either of two
// rights: the queue that gives is above its allocatable share, or the one that takes stays within its quota while the
// other is above its own. The test comes before the taking, so the last unit may leave a queue below its share; without
// that, indivisible gangs would protect a queue that is one GPU over. The other side of this is the saturation rule,
// which keeps two queues from taking the same thing from each other in turn: a queue that ends up above its own fair
// share must stay below the other in proportion. Reclaim.Multiplier widens that gap.
//
// KAI Scheduler judges a set of victims when it is complete. Here each unit is judged when it is added
// ([Reclaim.CheckUnit]), and the two agree on a set all of whose prefixes are legal; where no victim is below the
// reclaimer's own queue at a level, every legal set is one. Two differences: a dimension that nobody but some victims'
// queues has to do with is compared with these queues only, not with every queue that gave something else; and further
// dimensions take part for those who request them.
//
// # Bad input
//
// A slice that is too short goes on with zeros, a limit with Unlimited. So whoever translates a KAI Queue that names no
// resources, which there means quota 0 and limit 0, has to say the 0 of the limit. Negative amounts count as 0, except
// Unlimited as quota or limit. A unit below 1 counts as 1. Weights above [MaxWeight], usage and k-value above
// [MaxFactor] count as those; negative ones as 0. Sums saturate. Floats from the API go through [Fixed], which gives
// NaN and negative values 0.
//
// # Difference from KAI Scheduler
//
// The formulas are KAI Scheduler v0.17's. Besides the two in the order above there are three differences. A remainder never
// lifts a queue above its request or limit: KAI hands out the whole unit; here the rest goes to the next queue. Equal
// remainders of queues that have nothing else go round: KAI's go to the oldest queues for ever. And what a queue asks beyond its limit does not count for its
// parent ([Divider.AddUp]): KAI's department gets a share for it that nobody may use.
package fairshare
