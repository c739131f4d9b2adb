// Package vcgc is the garbage collector of Volcano's face: it deletes Volcano's Jobs (batch.volcano.sh) that have ended, when the time is up
// that their ttlSecondsAfterFinished gives.
package vcgc
