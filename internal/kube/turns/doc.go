// Package turns is the work queue that serves tenants in turn.
//
// Every queue of work that tenants can fill is one of these, so that however much one of them causes, the work of another waits for
// one item of each tenant that waits, and no longer:
//
//   - Items wait in a line per tenant, as a rule per namespace, and the lines are served round robin, one item each.
//   - A tenant is given another worker only while it holds less than three times what would stay free, so that items that take
//     long, such as questions to an API server that does not answer, never hold all workers. One tenant alone gets about three
//     quarters of them.
//   - What fails is tried again after a wait that doubles, and a tenant's retries besides come at a pace, so that a thousand
//     items that fail alike do not come back at once.
//
// As with client-go's queues an item waits once however often it is added, is in one worker's hands at a time, and comes back if
// it was added meanwhile. Memory is that of the items that wait; of a tenant without any nothing is kept, but for the pace of its
// retries, until that has caught up.
package turns
