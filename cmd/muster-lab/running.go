package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/lab"
)

func statusCommand() *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a running lab: where it is, its nodes, its pods, and pods bound where there was no room",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := lab.GetStatus(cmd.Context(), dir)
			if err != nil {
				return err
			}
			switch output {
			case "json":
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(s)
			case "text":
				printStatus(cmd.OutOrStdout(), s)
				return nil
			}
			return fmt.Errorf("--output: %q is neither text nor json", output)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the lab's `folder`")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func printStatus(w io.Writer, s lab.Status) {
	phase := "starting"
	if s.Ready {
		phase = "ready"
	}
	fmt.Fprintf(w, "lab         %s, process %d, up %s\n", phase, s.PID, time.Since(s.Started).Round(time.Second))
	fmt.Fprintf(w, "Kubernetes  %s at %s\n", s.Serves(), s.Server)
	fmt.Fprintf(w, "kubeconfig  %s\n", s.Kubeconfig)
	fmt.Fprintf(w, "nodes       %d, of which %d healthy\n", s.Nodes, s.NodesReady)
	fmt.Fprintf(w, "pods        %d hold room\n", s.Pods)
	if len(s.Rejected) == 0 {
		fmt.Fprintf(w, "rejected    none\n")
	}
	for _, reason := range slices.Sorted(maps.Keys(s.Rejected)) {
		fmt.Fprintf(w, "rejected    %d %s\n", s.Rejected[reason], reason)
	}
}

func downCommand() *cobra.Command {
	var dir string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a running lab and wait until it has ended; its data stay in its folder",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !lab.Running(dir) {
				fmt.Fprintf(cmd.OutOrStdout(), "No lab runs in %s.\n", dir)
				return nil
			}
			s, err := lab.ReadState(dir)
			if err != nil {
				return err
			}
			if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil {
				return fmt.Errorf("signal the lab's process %d: %w", s.PID, err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for lab.Running(dir) {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return fmt.Errorf("the lab's process %d has not ended: %w", s.PID, ctx.Err())
				}
			}
			fmt.Fprintln(cmd.OutOrStdout(), "The lab has stopped.")
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the lab's `folder`")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for its end")
	return cmd
}
