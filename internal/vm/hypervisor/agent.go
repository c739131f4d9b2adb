package hypervisor

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Agent is what Exec needs of a Hypervisor.
type Agent interface {
	Agent(ctx context.Context, uuid, command string) (answer string, err error)
}

// Output is what a command in a guest wrote, and how it ended.
type Output struct {
	Stdout, Stderr []byte
	// Truncated: more was written than was asked for, or than the agent kept.
	Truncated bool
	// ExitCode is the command's; 128 and the signal where one ended it.
	ExitCode int32
}

// How long Exec waits between asking whether a command has ended.
const (
	pollFirst = 20 * time.Millisecond
	pollMost  = 500 * time.Millisecond
)

// killBound is how long the guest may take to be told that a command is to end.
const killBound = 2 * time.Second

// Exec runs a command in a guest, with all its input given (nil: none) and without a terminal, until it ends or ctx does; then the guest is told to kill it, which works where the guest
// has a program "kill": agents have no call for it. What the command has started itself goes on. Of each output limit bytes are kept. Unavailable: no agent answers (yet), and nothing was run; an agent that goes away later is waited
// for. An answer to the start that is lost is Internal: a command must not run twice unasked.
func Exec(ctx context.Context, a Agent, uuid string, command []string, input []byte, limit int) (Output, error) {
	if len(command) == 0 || command[0] == "" {
		return Output{}, vm.Errorf(vm.Invalid, "exec in machine %s: there is no command", uuid)
	}
	if err := ask(ctx, a, uuid, "guest-ping", nil, nil); err != nil {
		return Output{}, fmt.Errorf("exec in machine %s: %w", uuid, err)
	}
	var started struct {
		PID *int64 `json:"pid"`
	}
	args := map[string]any{"path": command[0], "arg": command[1:], "capture-output": true}
	if len(input) > 0 {
		args["input-data"] = base64.StdEncoding.EncodeToString(input)
	}
	if err := ask(ctx, a, uuid, "guest-exec", args, &started); err != nil {
		if vm.KindOf(err) == vm.Unavailable {
			return Output{}, vm.Errorf(vm.Internal, "exec in machine %s: whether %.64q runs is not known: %w", uuid, command[0], err)
		}
		return Output{}, fmt.Errorf("exec in machine %s: %w", uuid, err)
	}
	if started.PID == nil {
		return Output{}, fmt.Errorf("exec in machine %s: the guest agent started %.64q and gave no pid", uuid, command[0])
	}
	for wait := pollFirst; ; wait = min(2*wait, pollMost) {
		var status struct {
			Exited       bool   `json:"exited"`
			ExitCode     int32  `json:"exitcode"`
			Signal       int32  `json:"signal"`
			Out          string `json:"out-data"`
			Err          string `json:"err-data"`
			OutTruncated bool   `json:"out-truncated"`
			ErrTruncated bool   `json:"err-truncated"`
		}
		err := ask(ctx, a, uuid, "guest-exec-status", map[string]any{"pid": *started.PID}, &status)
		if err != nil && vm.KindOf(err) != vm.Unavailable {
			if ctx.Err() != nil {
				kill(ctx, a, uuid, *started.PID)
			}
			return Output{}, fmt.Errorf("exec in machine %s: %w", uuid, err)
		}
		if err == nil && status.Exited {
			out := Output{ExitCode: status.ExitCode, Truncated: status.OutTruncated || status.ErrTruncated}
			if status.Signal > 0 && status.Signal < 128 {
				out.ExitCode = 128 + status.Signal
			}
			var cutOut, cutErr bool
			if out.Stdout, cutOut, err = decode(status.Out, limit); err == nil {
				out.Stderr, cutErr, err = decode(status.Err, limit)
			}
			if err != nil {
				return Output{}, fmt.Errorf("exec in machine %s: output: %w", uuid, err)
			}
			out.Truncated = out.Truncated || cutOut || cutErr
			return out, nil
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			kill(ctx, a, uuid, *started.PID)
			return Output{}, vm.Errorf(vm.Internal, "exec in machine %s: %.64q has not ended: %w", uuid, command[0], context.Cause(ctx))
		}
	}
}

// kill ends a command whose time is over, if the guest lets it. Nobody is told how that went: the command's own error says more.
func kill(ctx context.Context, a Agent, uuid string, pid int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killBound)
	defer cancel()
	_ = ask(ctx, a, uuid, "guest-exec", map[string]any{"path": "kill", "arg": []string{"-KILL", strconv.FormatInt(pid, 10)}}, nil)
}

// decode gives the first bytes of what an agent sent, and whether there were more.
func decode(text string, limit int) ([]byte, bool, error) {
	cut := false
	if most := base64.StdEncoding.EncodedLen(limit + 1); len(text) > most {
		text, cut = text[:most], true
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, false, err
	}
	if len(b) > limit {
		b, cut = b[:limit:limit], true
	}
	return b, cut, nil
}

func ask(ctx context.Context, a Agent, uuid, verb string, args, into any) error {
	q := map[string]any{"execute": verb}
	if args != nil {
		q["arguments"] = args
	}
	text, err := json.Marshal(q)
	if err != nil {
		return err
	}
	answer, err := a.Agent(ctx, uuid, string(text))
	if err != nil {
		return err
	}
	var r struct {
		Return json.RawMessage `json:"return"`
	}
	if err := json.Unmarshal([]byte(answer), &r); err != nil {
		return fmt.Errorf("guest agent: %s: %w", verb, err)
	}
	if into == nil {
		return nil
	}
	if len(r.Return) == 0 {
		return fmt.Errorf("guest agent: %s: there is nothing in its answer", verb)
	}
	if err := json.Unmarshal(r.Return, into); err != nil {
		return fmt.Errorf("guest agent: %s: %w", verb, err)
	}
	return nil
}
