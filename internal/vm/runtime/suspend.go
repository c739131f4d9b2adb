package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/image"
	"github.com/muster-scheduler/muster/internal/vm/spec"
	"github.com/muster-scheduler/muster/internal/vm/suspend"
)

// This file suspends machines and resumes them. The order, with what a crash after each step finds:
//
//	stop      Suspending is recorded     whether there is memory says whether it was saved
//	          save, to the node          the machine is off, and its memory is whole: whoever finds its end goes on here
//	the end   put on the claim           again, over what was put
//	          Exited, 143 Suspended      another pod can resume it
//	create    fetched to the node        the claim has it still
//	start     restored, held             as if it had not been tried
//	          taken                      this one has it; never let go, it is given back
//	          LetGo is recorded          it may have run: it is let go, or lost, and never begins again
//	          let go, Running            what it began from is removed

// suspended is the exit code of a machine that was suspended: that of a process that ended because it was told to. 0 would complete a Job.
const suspended = 128 + 15

// saveRate is how many bytes of memory are saved and restored in a second at the least; saveSlack what QEMU's state may have beyond the guest's memory.
const (
	saveRate  = 40 << 20
	saveSlack = 64 << 20
)

func place(s *spec.Spec) suspend.Place {
	return suspend.Place{Claim: s.Machine.SuspendTo, Owner: s.Machine.Owner, Index: s.Machine.Index, Container: s.Container.Name}
}

// memoryFile is where a machine's memory lies on the node: beside its first-boot data.
func memoryFile(in *domain.Input) string {
	for _, d := range in.Disks {
		if d.Role == domain.FirstBoot {
			return filepath.Join(filepath.Dir(d.File), "memory")
		}
	}
	return ""
}

// stateFiles are the files that a machine's state consists of. A root that is a block device is a claim of its own. A guest may have mounted its first-boot data.
func stateFiles(in *domain.Input) map[string]string {
	out := map[string]string{"memory": memoryFile(in)}
	for _, d := range in.Disks {
		switch {
		case d.Role == domain.Root && d.File != "":
			out["root"] = d.File
		case d.Role == domain.FirstBoot:
			out["first-boot"] = d.File
		}
	}
	return out
}

// fits says in one text what two machines must have alike so that one can go on from the other's state.
func (s *Server) fits(b *Sandbox, judged *spec.Spec, img image.Image) string {
	m := judged.Machine
	m.UUID, m.SuspendTo, m.Owner, m.Index = "", "", "", ""
	text, err := json.Marshal(struct {
		Image, Domain         string
		VCPUs                 int
		Memory, Page, Virtual int64
		Machine               spec.Machine
		Blocks                []spec.Block
		Cards                 int
	}{
		string(img.ID), s.opt.Domain.DomainType, judged.Resources.VCPUs, judged.Resources.Memory, judged.Resources.HugePage, img.VirtualSize, m, unplaced(judged.Blocks),
		len(b.Network.Interfaces),
	})
	if err != nil { // texts and numbers
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// unplaced are block devices without where they are on this node.
func unplaced(in []spec.Block) []spec.Block {
	out := make([]spec.Block, len(in))
	for i, b := range in {
		b.HostPath = ""
		out[i] = b
	}
	return out
}

// saved finds the state that a new machine begins from, whose UUID is then its own.
func (s *Server) saved(b *Sandbox, judged *spec.Spec, img image.Image) (fits string, resumes bool, err error) {
	if !judged.Machine.Suspend {
		return "", false, nil
	}
	if s.States == nil {
		return "", false, vm.Errorf(vm.Invalid, "%s: this node keeps no machines", spec.OwnOnStop)
	}
	if all := b.functions(); len(all) > 0 {
		return "", false, vm.Errorf(vm.Invalid, "%s: a machine with a virtual function (%s) cannot be saved", spec.OwnOnStop, all[0])
	}
	at, fits := place(judged), s.fits(b, judged, img)
	if err := s.unslept(b, at); err != nil {
		return "", false, err
	}
	if err := s.States.Others(at); err != nil {
		return "", false, err
	}
	about, err := s.States.Find(at)
	switch {
	case vm.KindOf(err) == vm.NotFound:
		return fits, false, nil
	case err != nil:
		return "", false, err
	case about.Machine != fits:
		s.log.Info("a suspended machine is not resumed: the pod asks for another one", "pod", b.String(), "state", at.String())
		return fits, false, s.States.Clear(at)
	case about.PodUID == judged.Pod.UID:
		s.log.Info("a suspended machine is not resumed: a container that is started again in its pod boots", "pod", b.String(), "state", at.String())
		return fits, false, s.States.Clear(at)
	}
	judged.Machine.UUID = about.UUID
	return fits, true, nil
}

// unslept is an error while the machine that the pod is to have is another pod's of this node. A Job makes the next pod when the one before is told to go, and not when it is gone.
func (s *Server) unslept(b *Sandbox, at suspend.Place) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, c := range s.containers {
		rec, box := c.rec.Load(), c.box.rec.Load()
		if !rec.live() || rec.Domain == nil || !rec.Domain.Spec.Machine.Suspend || box.ID == b.ID || box.Config.GetMetadata().GetNamespace() != b.Config.GetMetadata().GetNamespace() {
			continue
		}
		if other := place(rec.Domain.Spec); other.String() == at.String() {
			return vm.Errorf(vm.Unavailable, "pod %s with UID %s still has the machine of owner %s, index %q: it is waited for until that is suspended or has ended", box,
				box.Config.GetMetadata().GetUid(), at.Owner, at.Index)
		}
	}
	return nil
}

// letGo is the last moment at which a state can be somebody else's.
func (s *Server) letGo(ctx context.Context, c *containerState) error {
	rec := c.rec.Load()
	if rec.LetGo {
		return nil
	}
	if err := s.States.Take(place(rec.Domain.Spec), rec.ID); err != nil {
		return err
	}
	return s.saveContainer(ctx, c, func(r *Container) error { r.LetGo = true; return nil })
}

// used removes what a machine began from, once it runs.
func (s *Server) used(rec *Container) error {
	return errors.Join(s.States.Drop(place(rec.Domain.Spec), rec.ID), s.States.Forget(memoryFile(rec.Domain)))
}

// giveBack is for a machine that is removed before it ran.
func (s *Server) giveBack(rec *Container) error {
	if !rec.Resumes || rec.LetGo || rec.Domain == nil {
		return nil
	}
	return s.States.Return(place(rec.Domain.Spec), rec.ID)
}

// doLong is do for what takes its time with the machine's memory.
func (s *Server) doLong(rec *Container) func(context.Context, string, func(context.Context) error) error {
	return func(ctx context.Context, what string, f func(context.Context) error) error {
		bounded, cancel := context.WithTimeout(ctx, s.opt.Patience+time.Duration(rec.Domain.Spec.Resources.Memory/saveRate)*time.Second)
		defer cancel()
		if err := f(bounded); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
}

// suspend saves a machine within the grace, if its pod asked for that. If it cannot be, it goes on running, and nothing is said but in the log.
func (s *Server) suspend(ctx context.Context, c *containerState, grace time.Duration) error {
	rec := c.rec.Load()
	if rec.Domain == nil || !rec.Domain.Spec.Machine.Suspend || grace <= 0 || rec.Phase != Stopping {
		return nil
	}
	memory := memoryFile(rec.Domain)
	need := rec.Memory + saveSlack
	for _, bytes := range s.Volumes.Usage(ctx, []string{rec.ID}) {
		need += int64(min(bytes, 1<<60))
	}
	if err := s.States.Room(place(rec.Domain.Spec), need); err != nil {
		s.log.Error(err, "a machine is not suspended, and is shut down instead", "container", rec.ID)
		return nil
	}
	if !rec.Suspending {
		if err := s.States.Forget(memory); err != nil {
			return err
		}
		if err := s.saveContainer(ctx, c, func(r *Container) error {
			if r.Phase != Stopping {
				return errUnchanged
			}
			r.Suspending = true
			return nil
		}); err != nil && !errors.Is(err, errUnchanged) {
			return err
		}
	}
	bounded, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := s.Hypervisor.Save(bounded, rec.UUID, memory); err != nil {
		s.log.Error(err, "a machine could not be suspended, and is shut down instead", "container", rec.ID)
		return nil
	}
	return s.check(ctx, c)
}

// end is how a machine ended that was to be suspended. reason is "" if it was not, and an error says that it is to be asked again.
type end struct {
	code            int32
	reason, message string
}

// keep puts a machine that was saved on its claim.
func (s *Server) keep(ctx context.Context, rec *Container) (end, error) {
	if !rec.Suspending || rec.Domain == nil {
		return end{}, nil
	}
	files := stateFiles(rec.Domain)
	whole, err := s.States.Whole(files["memory"])
	if err == nil && !whole {
		return end{}, nil
	}
	if err == nil {
		err = s.doLong(rec)(ctx, "state", func(ctx context.Context) error {
			return s.States.Put(ctx, place(rec.Domain.Spec), rec.ID, suspend.About{PodUID: rec.Domain.Spec.Pod.UID, UUID: rec.UUID, Machine: rec.Fits}, files)
		})
	}
	if err != nil && ctx.Err() != nil {
		return end{}, err // this process ends, or its caller has given up: it is done again
	}
	if err != nil {
		s.log.Error(err, "a suspended machine could not be kept, and is lost", "container", rec.ID)
		return end{137, "SuspendFailed", short(err.Error())}, nil
	}
	return end{suspended, "Suspended", ""}, nil
}

// keptMAC is wished for the first card of a machine that can be suspended: a guest that is resumed has the one that it had, and asks for addresses with it. Where the
// plugins do not heed the capability mac, its pod has another.
func keptMAC(owner, index string) string {
	sum := sha256.Sum256([]byte(owner + "@" + index))
	return net.HardwareAddr{0x02, 0x65, sum[0], sum[1], sum[2], sum[3]}.String()
}
