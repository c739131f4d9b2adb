// Package usage is Volcano's plugin of that name: pods go where machines have been measured to have the most to spare, whatever is asked for there, and not where they are busy.
// The rules are those of Volcano's documentation; of what pods that came lately will use it has only what is looked at, and the formula is Muster's own.
//
//	node      refused while more of its CPU than thresholds.cpu, or more of its memory than thresholds.mem (80 percent each), was measured to be in use
//	points    Σ w·(1−U) ÷ Σ w, times 100, times usage.weight (5), over CPU and memory with the weights cpu.weight and memory.weight (1 each)
//	U         what was measured, and what those pods of the node are expected to use that the measurement does not tell of, at most 1
//	expected  of a pod that asks for CPU or memory, estimator.request_ratio (0.7) of what it asks for; of one that asks for neither, estimator.be_cpu (250m) and
//	          estimator.be_mem (200Mi). Where U would be more than estimator.risk_threshold (0.6), that counts estimator.risk_factor (1.2) times
//
// What is measured is a mean over the ten minutes before it was: of a pod that has been on its node for a part of them, the rest of what it is expected to use is added; of one that
// this run places, or that is on its way, all of it. A measurement counts for five minutes. Of a node without one the plugin says nothing: it refuses it to nobody, and gives it
// no points.
//
// What was measured is in whole percents, estimates are in millionths of a node and points in billionths (policy.ScorePoint); every division is cut to the unit below.
//
// Arguments: the weights are whole numbers from 0 to 1000, thresholds from 0 to 100, ratios from 0 to 10; a group of them is one mapping (thresholds: {cpu: 80}) or single ones
// (thresholds.cpu: 80). estimator.burst_ratio has no effect: what pods may use beyond what they ask for the model does not know.
package usage
