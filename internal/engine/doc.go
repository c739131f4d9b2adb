// Package engine decides: given a cluster.Snapshot it returns what to bind and what to wait for, and why.
//
// It is a pure function: no client, no clock, no logger, no randomness, no global. Time is Snapshot.Now; ties end in
// names. The same snapshot and profile give the same plans, byte for byte, with cold or warm caches.
//
// A Driver has a Store assume what is decided on it, and remember what was found out: the live loop, the scenario tests, the
// conformance runner and the simulators go from cycle to cycle with one. What-ifs (`muster explain`, replays) call Run.
//
// What is decided belongs to actions (the flow) and plugins (the policy). Actions and plugins know the engine; the
// engine knows neither. A Profile names them; New resolves it once against a Registry, and anything wrong with it is an
// error there and then.
//
// A Session is one run over the snapshot, in parts: the Ledger of nodes, queues and gangs (package ledger), the Rules, the Placer and the Recorder.
// contract.go says what an action may ask of each part. Only a Statement changes
// the Ledger, and every change can be undone exactly: RollbackTo is last-in-first-out, total, and cannot fail. Plugins get a View,
// which has no way to change anything.
//
// # One cycle
//
// Driver says what its caller keeps to.
//
//	Driver.Begin                    the Store's Snapshot
//	Driver.Ready                    runs actions until one decided something; the first time, before them,
//	  newSession                    ledger.New lays the snapshot out; each plugin is opened, once; Rules.Open
//	  Action.Run                    for each action of the profile, in order. Allocate, for one:
//	    Session.Pending               who waits and can be tried (Rules.Admit); the others get their Diagnosis
//	    Session.NewGangQueue          in the order in which they are served
//	    GangQueue.Pop                 the next one, nil for none
//	      Ledger.Begin                a Statement for it
//	      Placer.TryGang              Ledger.Next says which pods; Rules.CheckGates whether its queue may; then trial.placeGang,
//	                                  which ends in Statement.Place or Nominate for each pod, and in Observer.Done
//	      Session.Accept              it got what it asked for: the statement becomes a Bundle; GangQueue.Push, if it wants more
//	      Recorder.Diagnose           it did not, and the statement is as it was
//	  Plan.assume                   over the Store; then the caller has the Plan carried out, and asks Ready again
//	Driver.Advance                  no action is left
//	  Session.finish                Closer.Close of each plugin; the Trace
//	  Result.remember               by the Store
//
// A disruptive action takes Session.Waiting, and between Begin and AcceptFor package solver evicts and tries: Ledger.NextUnit,
// Rules.CheckUnit, Statement.EvictUnit, Placer.Promise, Statement.RollbackTo.
//
// # Proof
//
// Where each invariant is proved: rollback identity, permutation invariance, no overcommit in any prefix and gang
// atomicity in properties_test.go of package enginetest; behaviour in /scenarios.
package engine
