package main

import (
	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/lab/server"
)

// apiServerCommand is what `up --split` starts; users have no need of it.
func apiServerCommand() *cobra.Command {
	var dir, address string
	cmd := &cobra.Command{
		Use: server.APIServerCommand, Short: "Be the API server of a lab", Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return server.ServeAPI(cmd.Context(), dir, address, args)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the lab's `folder`")
	cmd.Flags().StringVar(&address, "address", "", "where to listen")
	return cmd
}
