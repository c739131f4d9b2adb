package engine

import (
	"context"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/placer"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/engine/rules"
)

// The words of the packages below that who runs an engine has to know; plugins and actions call things by their own packages' names.

type (
	// Verdict is a typed answer.
	Verdict = policy.Verdict
	// Reason is a no, as whoever says it declares it.
	Reason = policy.Reason
	// EvictionCause is what pods are evicted for.
	EvictionCause = policy.EvictionCause
	// Verb says what an intent does.
	Verb = ledger.Verb
	// Trace says why, for every gang that waits and every gang something was decided for.
	Trace = recorder.Trace
	// GangTrace is the outcome for one gang.
	GangTrace = recorder.GangTrace
	// QueueTrace is a queue after the run.
	QueueTrace = recorder.QueueTrace
	// Attempt is what one disruptive action had to say to a gang.
	Attempt = recorder.Attempt
	// Diagnosis is why a gang could not be placed.
	Diagnosis = recorder.Diagnosis
	// Told is a diagnosis that is remembered.
	Told = recorder.Told
	// Stats counts what a run did.
	Stats = recorder.Stats
)

// The verbs of plans, the codes of verdicts that are not yes, and the causes of evictions.
const (
	Bind     = ledger.Bind
	Nominate = ledger.Nominate
	Evict    = ledger.Evict

	No        = policy.No
	NoForever = policy.NoForever
	Wait      = policy.Wait

	Consolidation = policy.Consolidation
	Reclaim       = policy.Reclaim
	Preempt       = policy.Preempt
	Repair        = policy.Repair
	Shuffle       = policy.Shuffle
)

// This file is what an action may ask and do: all of it, by name. A test compares it with the code. The life of a cycle is in doc.go.
//
// # The parts, and what each may be asked
//
// Each part is a package that knows those above it and none below; none knows an action. Between the ledger and the rules is package
// policy: what plugins are asked, and what they answer in.
//
//	Ledger      what is free, who holds what, who is promised what
//	  nodes       Idle, Later, TotalLater, FitsIdle, FitsLater, StillFits, CountLater, EachDevice, Needs, Touched
//	  gangs       Gang, EachGang, Next, Collect, SetOrder, Members, Fate, NodeOf
//	  queues      Queue, Queues, Tops, MaxQueueID, LeafOf, Charged, ChargeOf
//	  what they could give     Live, LivePods, EachLive, NextUnit, NextUnitOn, NextUnitOf, Given
//	  admission   Asks, Claimed, Admitted, Admit, Admissions; OpenAdmission is the engine's, once
//	  promises    Promises, EachPromise, EachHold, Holds, Held, HeldFor, HoldFor, Void, Voided
//	  change      Begin, Decisions, Freed; Follow is the engine's, once
//	Statement   the one way to change a ledger
//	  do          Place, Nominate, Evict, Spare, Move; of units EvictUnit, Return, Keep; NominateAll, OpenHolds
//	  undo        Mark, RollbackTo, Discard; to do it again Cut, Redo, Suspend
//	  ask         Binds, BindsSince, Waits, Immediate, Ops
//	  end         Settle is the session's, when it accepts
//	Recorder    what is said of the run; decides nothing
//	  why         Diagnose, Note, Postpone, Postponed, Leave, Left, Stale, Lift, Truncated, Action
//	  figures     Considered, Searched, Scenario, Step, Steps
//	  later runs  WakeAt, RememberAnswer, RememberedAnswer, Retell, PassEnd
//	  the parts'  Begin, Expires, Expect, Gangs, Settled, Beyond, Behind, IsBehind, Result; no action asks for these
//	Rules       who may have what, and take it from whom; nodes are not looked at
//	  to have     MustAsk, Vote, Refuse, Admit, CheckTurn, CheckGates, FairShare, CompareGangs, CompareAnyGangs
//	  to take     CheckStarving, CheckReclaim, CheckVictimQueue, CheckVictim, CheckUnit, Yields, AnyBeneficiary, BySiblings, Standing, OwnLaw, OpenLaw, LawfulUnit, TakeIn, InBundles
//	  to shuffle  Misplaced, ShuffledEvery, LastShuffled, CheckShuffle
//	  in order    CompareVictimQueues, Tier, Units, GentleUnit, Age, ShareMoved
//	  the parts'  Open, Close, CheckReturn, CheckGatesNow, OverAgain, CompareQueues, Orders, Entwines, Detail, Risks; no action asks for these
//	Placer      where pods go
//	  to place    TryGang; as a what-if Promise, PromisePod, PromiseOn
//	  elsewhere   SpareUnit, MoveUnit, MoveTo
//	  to ask      Room, Exact, Filtered, RefusedAll, Allows, CheckPods, CheckNear, Constrained, Near, Narrow, ChoiceKey, AppendKinds, Awaits, Rated
//	  the parts'  Limited; no action asks for these
//	Session     what takes several of them
//	  who         Unadmitted, Pending, Waiting, NewGangQueue, StillReleasing
//	  decide      Accept, AcceptFor, Broken
//	  the run     Settings, Aborted

// Action is one step of a run: it pulls gangs, tries them in Statements, and keeps or discards them. It returns as soon as the run is
// aborted, with no statement open. It keeps nothing of one run for the next.
type Action interface {
	Run(s *Session)
}

// Session is one run over a snapshot, as actions see it: its parts, and what takes more than one of them. It is not safe for
// concurrent use.
type Session struct {
	Snap     *cluster.Snapshot
	Ledger   *ledger.Ledger
	Rules    *rules.Rules
	Placer   *placer.Placer
	Recorder *recorder.Recorder

	ctx    context.Context
	engine *Engine
	draft  draft
}
