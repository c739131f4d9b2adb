package tdm

import "github.com/muster-scheduler/muster/internal/engine/policy"

// The reasons that this package says.
var (
	ReasonZoneClosed   = &policy.Reason{Key: "ZoneClosed", Text: "the node is lent: its revocable zone {object} is open {detail}", Unblock: policy.UnblockNode}
	ReasonNotRevocable = &policy.Reason{Key: "NotRevocable", Text: "the node is lent in revocable zone {object}, to pods with the annotation {detail}", Unblock: policy.UnblockNode}
	ReasonMakesNoWay   = &policy.Reason{Key: "MakesNoWay", Text: "its PodGroup does not say that it makes way for others (volcano.sh/preemptable)"}
	ReasonMakesWay     = &policy.Reason{Key: "MakesWay", Text: "the gang that it would go for makes way for others itself (volcano.sh/preemptable)"}
	ReasonGangBudget   = &policy.Reason{Key: "GangBudget", Text: "no more of its gang may go at a time than its disruption budget says", Unblock: policy.UnblockTurn}
)
