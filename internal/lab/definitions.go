package lab

import _ "embed"

//go:embed crds/topology.node.k8s.io_noderesourcetopologies.yaml
var nodeResourceTopologies []byte

// NodeCRDs returns the CustomResourceDefinitions, as YAML, of what programs on nodes publish; see crds/README.md.
func NodeCRDs() [][]byte { return [][]byte{nodeResourceTopologies} }
