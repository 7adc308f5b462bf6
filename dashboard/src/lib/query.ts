/** HTTP data of a page: asked for again and again while the page is seen, with its age. */
import { keepPreviousData, QueryClient, useQuery, type UseQueryResult } from "@tanstack/react-query";
import { ApiError, get } from "./api";

export const client = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (times, error) => times < 2 && !(error instanceof ApiError && error.problem.status >= 400 && error.problem.status < 500),
      retryDelay: 500,
      refetchOnWindowFocus: true,
      staleTime: 1000,
    },
  },
});

export function useApi<T>(path: string, seconds = 5): UseQueryResult<T> {
  return useQuery<T>({
    queryKey: [path],
    queryFn: ({ signal }) => get<T>(path, signal),
    refetchInterval: seconds * 1000,
    placeholderData: keepPreviousData,
  });
}
