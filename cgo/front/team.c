/* Teams: arithmetic on ranks, the part of the device interface that needs no device. */
#include "front.h"

static const ncclTeam_t nobody = {0, 0, 0};

/* A bad communicator sets the last error and has no team; the interface has no room for a result. */
static ncclTeam_t world(ncclComm_t comm) {
  ncclTeam_t team = nobody;
  if (pncclCommCount(comm, &team.nRanks) != ncclSuccess || pncclCommUserRank(comm, &team.rank) != ncclSuccess)
    return nobody;
  team.stride = 1;
  return team;
}

static ncclTeam_t alone(ncclComm_t comm) {
  ncclTeam_t all = world(comm), self = {1, 0, 1};
  return all.nRanks == 0 ? nobody : self;
}

LP_API(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm)) { return world(comm); }
LP_API(ncclTeam_t, ncclTeamRail, (ncclComm_t comm)) { return world(comm); }
LP_API(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm)) { return alone(comm); }
LP_API(ncclTeam_t, ncclTeamCftMultimem, (ncclComm_t comm)) { return alone(comm); }
LP_API(ncclTeam_t, ncclTeamCft, (ncclComm_t comm, ncclCftTeamMode_t mode)) {
  (void)mode;
  return alone(comm);
}

LP_API(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank)) {
  return world(comm).rank + (rank - team.rank) * team.stride;
}

LP_API(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank)) {
  return pncclTeamRankToWorld(comm, team, rank) == world(comm).rank ? 0 : -1;
}
