// Package volcano is Volcano's dialect: what Queues of scheduling.volcano.sh say in the words of
// the model, and what their writers need to add up (Usage).
//
// It is pure, and knows no other dialect. Which part of Volcano's interface it does not honour yet
// each function says; docs/ledgers/volcano.yaml has the rows.
package volcano
