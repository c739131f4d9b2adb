package roles

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	kbkeys "github.com/muster-scheduler/muster/api/kubebatch/keys"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/kube/textfile"
	"github.com/muster-scheduler/muster/internal/profile/volcano"
)

// Flags of kube-batch's face.
const (
	kubeBatchNameFlag  = "kube-batch-scheduler-name"
	kubeBatchConfFlag  = "kube-batch-scheduler-conf"
	kubeBatchQueueFlag = "kube-batch-default-queue"
	kubeBatchClassFlag = "kube-batch-priority-class"
)

// kubeBatchFlags declares them.
func (s *Settings) kubeBatchFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&s.KubeBatchNames, kubeBatchNameFlag, nil, "spec.schedulerName of the pods that are kube-batch's, whose PodGroups and Queues are read then; none: such pods are somebody else's")
	fs.StringVar(&s.KubeBatchConf, kubeBatchConfFlag, "", "scheduler file in kube-batch's format for the gangs that are kube-batch's, read once; empty for kube-batch's default one: actions allocate and backfill")
	fs.StringVar(&s.KubeBatchQueue, kubeBatchQueueFlag, kbkeys.DefaultQueue, "queue of gangs of kube-batch's that name none")
	fs.BoolVar(&s.KubeBatchClass, kubeBatchClassFlag, true, "give gangs of kube-batch's the priorities of their PriorityClasses; without, all have the same")
}

// kubeBatch is the face as the flags say it.
func (s *Settings) kubeBatch() dialect.KubeBatch {
	if len(s.KubeBatchNames) == 0 {
		return dialect.KubeBatch{}
	}
	return dialect.KubeBatch{Schedulers: s.KubeBatchNames, Queue: s.KubeBatchQueue, Alike: !s.KubeBatchClass}
}

// checkKubeBatch looks at the flags of the face.
func (s *Settings) checkKubeBatch() error {
	for _, name := range s.KubeBatchNames {
		if name == "" || slices.Contains(s.SchedulerNames, name) || slices.Contains(s.VolcanoNames, name) {
			return fmt.Errorf("--%s: %q must be a name, and none of --scheduler-name and --volcano-scheduler-name: a pod is of one face", kubeBatchNameFlag, name)
		}
	}
	if s.KubeBatchConf != "" && len(s.KubeBatchNames) == 0 {
		return fmt.Errorf("--%s: there are no gangs of kube-batch's without --%s", kubeBatchConfFlag, kubeBatchNameFlag)
	}
	return nil
}

// kubeBatchFile is the scheduler file of the face.
func (s *Settings) kubeBatchFile() (volcano.File, error) {
	text, name := []byte(volcano.KubeBatchDefault), "kube-batch's default"
	if s.KubeBatchConf != "" {
		var err error
		if text, err = textfile.Read(s.KubeBatchConf, mostOfFile); err != nil {
			return volcano.File{}, fmt.Errorf("--%s: %w", kubeBatchConfFlag, err)
		}
		name = s.KubeBatchConf
	}
	file, err := volcano.ParseKubeBatch(text, builtin.Registry())
	if err != nil {
		return volcano.File{}, fmt.Errorf("--%s: %s: %w", kubeBatchConfFlag, name, err)
	}
	return file, nil
}

// tellKubeBatchFile logs what has no effect in the face's scheduler file.
func (p *process) tellKubeBatchFile() error {
	if len(p.KubeBatchNames) == 0 {
		return nil
	}
	file, err := p.kubeBatchFile()
	if err != nil {
		return err
	}
	for _, told := range file.Told {
		p.log.Info("kube-batch's scheduler file was understood in part", "file", p.KubeBatchConf, "problem", told.Error())
	}
	return nil
}
