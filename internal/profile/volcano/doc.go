// Package volcano reads Volcano's scheduler file: which actions are done for Volcano's gangs, and which plugins rule them, in tiers, with their arguments and switches.
//
//	bytes ──Parse(known)──► File: an engine.Face, and what is told; or a Fault: line, field and rule
//
// It is pure. A file is taken whole or refused whole. As with Volcano an action that nothing has is refused, and a plugin that nothing has is told and left out.
package volcano
