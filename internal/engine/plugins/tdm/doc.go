// Package tdm is Volcano's plugin of that name: nodes are lent to a cluster for a part of the day. A node is of the revocable zone that its label names, and the scheduler file says
// when each zone is open, in UTC: from the first minute on, up to the second, over midnight where that is the earlier one. The rules are those of Volcano's documentation.
//
//	node        of a zone that is open, for pods that say that they are revocable; of one that is closed, or that the file does not name, for nobody
//	points      100 for a revocable pod on a node of a zone
//	gangs       those that make way for others come after those that do not, and others do not go for them
//	victims     by preempt, pods of gangs that make way, as many of a gang in a cycle as its budget says: Number of them, all but Number of them, or one
//
//	leave       by shuffle, revocable pods of nodes whose zone, of those that the file names, is closed: what a gang can do without as its budget says, each tdm.evict.period (1m); what it needs
//	            for other nodes, or all of it at once
//
// Arguments: tdm.revocable-zone.NAME, two times as HH:MM-HH:MM, which differ; tdm.evict.period, a duration above 0.
package tdm
