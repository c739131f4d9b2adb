// Package migrate says whether a cluster can change over from KAI to Muster now, and what will differ.
//
// It answers with findings: what stands in the way, what to see to, and what is different for the objects that this cluster
// has. It reads, and writes nothing. `muster migrate check` is its caller.
//
// KAI's single scheduler holds no Lease, so that nothing in the cluster keeps a second scheduler out: this check is what does.
// A Deployment is KAI's when an image of its is called as KAI's are (…/kai-scheduler/<component>), or when it carries KAI's
// names where its operator puts them (see component). Muster's own carry other names, and run `muster run ROLE`.
package migrate
