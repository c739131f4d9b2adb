package keys

// An annotation of Muster's own by which an administrator says what PodDisruptionBudgets do for a queue's work. KAI's
// components neither write nor read it.
const (
	// BudgetsAnnotation, on a Queue, is BudgetsOrder or BudgetsBlock; it holds for the queues below, too. Default:
	// BudgetsOrder.
	BudgetsAnnotation = "muster.dev/disruption-budgets"

	// BudgetsOrder: work whose eviction would violate a PodDisruptionBudget is evicted last.
	BudgetsOrder = "order"

	// BudgetsBlock: work whose eviction would violate a PodDisruptionBudget is not evicted for others, not even what
	// the queue holds over its quota.
	BudgetsBlock = "block"
)
