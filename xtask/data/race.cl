// Every work item stores its own number in one place: what oclgrind must find.
kernel void race(global int *place)
{
  place[0] = get_global_id(0);
}
