// Command build writes Muster's container images as OCI archives, without a container engine and without root: from nothing but the
// programs, the certificates of public authorities, and, for muster-node, the packages of Debian that its C library comes in.
//
// The same tree gives the same digests: nothing of an image depends on the time, the machine, or the order in which things are done.
// An archive is an OCI image layout in a tar file, which container tools load and push. Beside each lies its bill of materials (SPDX 2.3, JSON), which is also in the image, at /usr/share/sbom.
//
// It is a module of its own, so that what handles images is no part of what Muster depends on.
package main
