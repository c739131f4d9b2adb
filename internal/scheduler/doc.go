// Package scheduler is the loop that lives: it keeps a Store true, lets the engine decide, and hands decisions on.
//
//	feed ──changed──► drain into the store ► engine.Driver ─plan─► apply.Binds, apply.Evictions
//	                        ▲                      └─trace─► apply.Statuses, metrics
//	                        └── outcomes: what could not be written is forgotten and tried again later
//
// It answers when to decide. It refuses to decide anything itself. One goroutine owns the Store; everything it waits for
// comes through channels. It runs when the world changed, when a waiting verdict is due, and at least once a period; if
// neither the store nor the time has anything new, a cycle returns at once.
package scheduler
