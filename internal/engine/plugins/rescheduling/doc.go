// Package rescheduling is Volcano's plugin of that name: it names pods of nodes of which much is used, which go where little is, while the action shuffle is done.
//
//	much     more than targetThresholds of something that it names
//	little   less than thresholds of all that they name, on a node that takes pods
//	used     what the pods of a node ask for, of what it has, in percent; not what they have been measured to use
//
// The pods of a node go by the priority of their gangs, the lowest first, then by their own, and of one priority those that came last; none whose own or gang's is that of
// thresholdPriorityClassName or above, and none that asks for nothing of
// which much is used. One goes only while its node is still used that much, and only to a node that is used little and of which not too much is used with it.
//
// Arguments: interval, how long after pods last went others may (5m); strategies, a list of name and params. The one that is known is lowNodeUtilization, with params thresholds and
// targetThresholds (percents by resource; 100 where one is not said, cpu and memory if none is), thresholdPriorityClassName (system-cluster-critical), and nodeFit, which is always true.
// metricsPeriod is taken and has no effect.
package rescheduling
