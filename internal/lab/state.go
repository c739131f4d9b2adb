package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// State is what a running lab writes into its folder, so that other processes find it.
type State struct {
	// PID is the process of the lab; a signal to it stops the lab.
	PID int `json:"pid"`
	// Server is the URL of the API server.
	Server string `json:"server"`
	// Kubeconfig is the path of a kubeconfig with the rights of system:masters.
	Kubeconfig string `json:"kubeconfig"`
	// StatusURL serves Status as JSON.
	StatusURL string `json:"statusURL"`
	// MetricsURL serves what the nodes have, as kube-state-metrics would: kube_node_status_capacity.
	MetricsURL string `json:"metricsURL"`
	// Version is the Kubernetes version served, such as v1.37.2.
	Version string `json:"version"`
	// Emulates is the version that the servers behave like instead, such as 1.34; "" for none.
	Emulates string `json:"emulates,omitempty"`
	// Started is when the lab's process began.
	Started time.Time `json:"started"`
	// Ready is true once the API server answers, the CRDs are established and the fleet's nodes are ready.
	Ready bool `json:"ready"`
}

// Serves says in words which Kubernetes is served.
func (s *State) Serves() string {
	if s.Emulates == "" {
		return s.Version
	}
	return s.Version + " as " + s.Emulates
}

// Status is a lab's answer to `muster-lab status`.
type Status struct {
	State
	// Nodes counts the nodes that the lab plays; NodesReady those of them that are healthy.
	Nodes      int `json:"nodes"`
	NodesReady int `json:"nodesReady"`
	// Pods counts the bound pods that hold room on played nodes.
	Pods int `json:"pods"`
	// Rejected counts, by reason (such as OutOfcpu or OutOfnvidia.com/gpu), the pods that a played kubelet
	// turned away at admission since the lab started: each one was bound where there was no room for it.
	Rejected map[string]int `json:"rejected,omitempty"`
}

// StatePath is the file in a lab's folder that holds its State.
func StatePath(dir string) string { return filepath.Join(dir, "lab.json") }

// ReadState reads the State of the lab in dir. It says nothing about whether that lab still runs; see Running.
func ReadState(dir string) (State, error) {
	var s State
	b, err := os.ReadFile(StatePath(dir))
	if err != nil {
		return s, fmt.Errorf("read the lab's state: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read the lab's state %s: %w", StatePath(dir), err)
	}
	return s, nil
}

// WriteState writes s for the lab in dir, atomically.
func WriteState(dir string, s State) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp := StatePath(dir) + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the lab's state: %w", err)
	}
	if err := os.Rename(tmp, StatePath(dir)); err != nil {
		return fmt.Errorf("write the lab's state: %w", err)
	}
	return nil
}

// GetStatus asks the lab in dir how it is. It fails if none runs there.
func GetStatus(ctx context.Context, dir string) (Status, error) {
	if !Running(dir) {
		return Status{}, fmt.Errorf("no lab runs in %s", dir)
	}
	s, err := ReadState(dir)
	if err != nil {
		return Status{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.StatusURL, nil)
	if err != nil {
		return Status{}, fmt.Errorf("ask the lab for its status: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Status{}, fmt.Errorf("ask the lab for its status: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Status{}, fmt.Errorf("ask the lab for its status: %s", resp.Status)
	}
	var st Status
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
		return Status{}, fmt.Errorf("read the lab's status: %w", err)
	}
	return st, nil
}
