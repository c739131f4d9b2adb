package keys

// Names of Muster's own by which the scheduler tells what its decisions took from others.
const (
	// DecisionAnnotation, on an event about the PodGroup that a decision was for, is the decision's record in JSON: when, by
	// which action and right, who had to go and why, and what became of the shares. Written by the scheduler.
	DecisionAnnotation = "muster.dev/decision"

	// EventRoomMade: others leave, so that the gang has room.
	EventRoomMade = "RoomMade"

	// EventEvictionsSpared: others were to leave for the gang, and were spared because the world had changed.
	EventEvictionsSpared = "EvictionsSpared"
)
