// Package volcano is Volcano's dialect: what PodGroups and Queues of scheduling.volcano.sh, and the pods that name Volcano's scheduler, say in the words of
// the model, and what their writers need to add up (Usage).
//
// It is pure, and knows no other dialect: what a priority class is worth it asks of its caller. Which part of Volcano's interface it does not honour yet
// each function says; docs/ledgers/volcano.yaml has the rows.
package volcano
