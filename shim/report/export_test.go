package report

// RASAddress returns the address at which this process serves NCCL's RAS protocol, "" if it does not.
func RASAddress() string {
	watched.Lock()
	defer watched.Unlock()
	if watched.ras == nil {
		return ""
	}
	return watched.ras.Address()
}
