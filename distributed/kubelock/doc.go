// Package kubelock keeps locks in Lease objects of Kubernetes: a backend for wllock, in a namespace of a cluster.
//
//	backend, err := kubelock.Open("kubernetes://shop")
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// Each lock that is held is one Lease of coordination.k8s.io/v1. Its name begins with wllock- and the key, as far as a name allows. Annotations
// have the key and the document, and package driver/register says what is in that. An update names the resourceVersion and the UID that were read.
// A Lease is deleted when its lock is free. The spec is for people: kubectl get leases shows the holder. No controller of Kubernetes reads it.
//
// The resourceVersion numbers the fences. It is the revision of etcd, which grows with each write of the cluster, and since Kubernetes 1.35
// a documented promise of the API.
//
// # What it needs
//
// Kubernetes 1.14, and a Role for the Pods' service account, which docs/backends.md has: create, get, update, delete, list and watch on leases.
// Ping tries all of them. Waiters have one watch each, and so have locks that are held for more than a tenth of a second.
//
// No request is repeated by the client: a write that was repeated after a lost answer would find its own first try, as a conflict. The answer 429
// of API Priority and Fairness has a request for a lock repeated, at a pace of its own, until its claim window is over.
//
// # What loses locks
//
//   - A cluster that is restored from a backup has the locks of that time, and counts resourceVersions from there: fences fall, and two holders
//     are possible. Restore etcd with etcdutl snapshot restore --bump-revision, while no process works.
//   - Whoever deletes Leases, or the namespace, removes locks. Holders find that out at their next renewal.
//
// A killed process leaves Leases. Those that no other process asks for are deleted a day after their time, by processes that make others.
package kubelock
